"""From a file or bytes to text: what kind of content it is, unpacked, decoded (rule F2)."""

import os
from pathlib import Path

from arrowir.diagnostics import FormatError

GZIP, ZSTD, COLZ, BOM = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"COLZ", b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"

# What other files start with, and what to do about it.
_FOREIGN: tuple[tuple[bytes, str], ...] = (
    (COLZ, "a columnar `COLZ` container, whose form is not public; write the module as JSON with `NKI_USE_COLZ=0`"),
    (b"PAR1", "a Parquet file; read the data set's folder instead"),
    (b"ARROW1", "an Arrow file, not JSON"),
    (b"PK\x03\x04", "a zip archive; unpack it first"),
    (b"\xff\xfe", "UTF-16 text; convert it to UTF-8"),
    (b"\xfe\xff", "UTF-16 text; convert it to UTF-8"),
)  # fmt: skip


def shown(path: str) -> str:
    """Return a path as text: what of a name is no UTF-8 is replaced."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:  # no file can have such a name
        name = path.encode(errors="replace")
    return name.decode(errors="replace")


def read_bytes(source: str | os.PathLike[str] | bytes, path: str | None = None) -> bytes:
    """Return the content of a file, or the bytes themselves, unpacked where they are gzip or zstd.

    Parameters
    ----------
    source : path or bytes
        What to read.
    path : str, optional
        Name of the source in messages.

    Returns
    -------
    bytes
        The content, no longer packed.

    Raises
    ------
    FormatError
        If the file cannot be read, or its packing is damaged.

    Notes
    -----
    Implements rule F2: packing is found by content, never by name.
    """
    if isinstance(source, bytes):
        data = source
    else:
        try:
            data = Path(source).read_bytes()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise FormatError(f"cannot be read: {reason[:1].lower()}{reason[1:]}", path=path) from None
    if data.startswith(GZIP):
        return _unpack_gzip(data, path)
    if data.startswith(ZSTD):
        return _unpack_zstd(data, path)
    return data


def _unpack_gzip(data: bytes, path: str | None) -> bytes:
    import gzip
    import zlib

    try:
        return gzip.decompress(data)
    except EOFError:
        raise FormatError("the gzip data ends early: the file is truncated", path=path, offset=len(data)) from None
    except (OSError, zlib.error) as error:
        raise FormatError(f"the gzip data is damaged: {error}", path=path) from None


def _unpack_zstd(data: bytes, path: str | None) -> bytes:
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return stream.read()
    except OSError as error:
        if "Truncated" in str(error):
            raise FormatError("the zstd data ends early: the file is truncated", path=path, offset=len(data)) from None
        raise FormatError(f"the zstd data is damaged: {error}", path=path) from None


def pack(data: bytes, path: str) -> bytes:
    """Pack bytes as the name of the file says: `.gz`, `.zst`, or not at all; equal bytes give equal bytes."""
    if path.endswith(".gz"):
        import gzip

        return gzip.compress(data, mtime=0)
    if path.endswith(".zst"):
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(data)
        return sink.getvalue().to_pybytes()
    return data


def decode(data: bytes, path: str | None = None) -> str:
    """Return the text of a JSON file, or say what the bytes are instead.

    Parameters
    ----------
    data : bytes
        Content, not packed.
    path : str, optional
        Name of the source in messages.

    Returns
    -------
    str
        The text.

    Raises
    ------
    FormatError
        If the bytes are empty, binary, or no UTF-8; each kind has a message of its own (rule F2).
    """
    if not data:
        raise FormatError("the file is empty", path=path, offset=0)
    for start, what in _FOREIGN:
        if data.startswith(start):
            raise FormatError(f"this is {what}", path=path, offset=0)
    if data.startswith(BOM):
        raise FormatError("the text starts with a byte order mark; remove its three bytes", path=path, offset=0)
    # No UTF-8 text starts so: CBOR's maps (0xa0 to 0xbf) and its self-description tag.
    if 0xA0 <= data[0] <= 0xBF or data.startswith(b"\xd9\xd9\xf7"):
        raise FormatError("this is CBOR, which is not read; have the module written as JSON", path=path, offset=0)
    if data[:2] in (b"{\0", b"\0{", b"[\0", b"\0["):
        raise FormatError("this is UTF-16 text; convert it to UTF-8", path=path, offset=0)
    content = data.rstrip(b"\0" + _SPACE)
    if not content:
        what = "NUL bytes" if b"\0" in data else "white space"
        raise FormatError(f"the file holds {what} alone", path=path, offset=0)
    nul = data.find(b"\0", len(content))
    if nul >= 0:
        count = data.count(b"\0", nul)
        raise FormatError(f"NUL bytes ({count:,}) follow the document; cut them off", path=path, offset=nul)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise FormatError(f"byte 0x{byte:02x} is not UTF-8", path=path, offset=error.start) from None
