"""A readable listing of a module: stable, for people and for golden files."""

from typing import TYPE_CHECKING

from arrowir.diagnostics import OptionError
from arrowir.listing.module import Listing

if TYPE_CHECKING:
    from arrowir.ir import IR


def text(ir: "IR", module_id: int | None = None, *, provenance: bool = False) -> str:
    """Return a readable listing, one line per instruction.

    A location is shown as ``name@SB<partition,byte>(PxB)#Kind``, with dtype and shape of its set; what is usual for its
    memory is left out. An instruction is shown as its number in program order, name, opcode, engine, then its operands
    as ``inputs -> outputs`` with access patterns ``name[[step,num],...]+offset:dtype``, its keys, branch targets, edges
    and semaphores. ``%r`` is a register; ``@`` stands before an address that is an expression or a register, ``?``
    before a name that did not resolve. A name that occurs several times in its function has a number appended, like
    ``name#2``: of an instruction that at the beginning of its line. Names with unusual characters are JSON strings.

    Left out are members that say nothing (null, or the default of an op-specific key), `origin`, `loopnest`,
    `access_shape`, `debug`, and the scheduler's estimates. Values of more than 160 characters are cut.

    Parameters
    ----------
    ir
        The batch.
    module_id
        The module; all of them by default.
    provenance
        Append to inlined rows where they come from, as ``; kernel @ outer > inner, was name``: the kernel function
        around the row, the call-sites from outermost to innermost, the name in that function (rule N16). Rows that
        inlining made, like a continuation, came from nowhere and have no such note.

    Returns
    -------
    str
        The lines, the last one ended like the others.

    Raises
    ------
    OptionError
        If there is no such module.

    Examples
    --------
    >>> from arrowir import build
    >>> module = build.module()
    >>> main = module.function()
    >>> tile = main.sb("tile", [128, 4], addr=64)
    >>> memset = main.add("Memset", [], [tile], mode="Const", constant=0, engine="Pool")
    >>> print(text(module.ir("small")), end="")
    module small  arch gen3, version 2  attributes={}
    <BLANKLINE>
    function sg0000
      tile@SB<0,64>(128x16)#Internal  float32[128,4]  allocated
      block Block1
        0 I-1 Memset Pool  -> tile[[4,128],[1,4]]+0:float32  constant=0 mode=Const
    """
    if module_id is not None and not 0 <= module_id < len(ir):
        raise OptionError(f"module ids go from 0 to {len(ir) - 1}, got {module_id}")
    wanted = range(len(ir)) if module_id is None else (module_id,)
    listings = ("\n".join(Listing(ir, m, provenance=provenance).lines()) for m in wanted)
    return "\n\n".join(listings) + "\n" if len(wanted) else ""
