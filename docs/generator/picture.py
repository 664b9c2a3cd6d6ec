"""The picture of tables and keys, drawn from the schema."""

from dataclasses import dataclass
from html import escape

from arrowir import schema
from arrowir.schema import Table

COLUMNS: tuple[tuple[str, ...], ...] = (
    ("modules",),
    ("functions", "queues", "call_chains"),
    ("blocks", "sets", "registers"),
    ("instructions", "locations", "references"),
    ("operands", "dependencies", "branches", "loops", "calls", "call_arguments", "semaphores", "aliases", "patterns"),
)
"""Where tables stand: columns from left to right, each from top to bottom."""

WIDTH, GAP_X, GAP_Y, LINE, PAD = 168, 36, 14, 16, 8
HUES = {
    "modules": 210,
    "functions": 260,
    "blocks": 25,
    "instructions": 145,
    "sets": 335,
    "locations": 310,
    "registers": 50,
}


@dataclass(frozen=True)
class Box:
    """A table in the picture."""

    table: Table
    keys: tuple[tuple[str, str], ...]
    x: int
    y: int

    @property
    def height(self) -> int:
        """Height in pixels."""
        return 24 + LINE * len(self.keys) + (PAD if self.keys else 0)


def keys_of(table: Table) -> tuple[tuple[str, str], ...]:
    """Return the stored keys of a table with what they point at; `any` where another column says that."""
    ids = [c for c in table.stored if c.kind == "id" and c.name != "call_chain_id"]
    return tuple((c.name, c.of or "any") for c in ids)


def boxes() -> dict[str, Box]:
    """Return every table with its place."""
    placed: dict[str, Box] = {}
    heights = []
    for names in COLUMNS:
        sizes = [Box(schema.BY_NAME[n], keys_of(schema.BY_NAME[n]), 0, 0).height for n in names]
        heights.append(sum(sizes) + GAP_Y * (len(sizes) - 1))
    tallest = max(heights)
    for number, names in enumerate(COLUMNS):
        spare = (tallest - heights[number]) / (len(names) + 1)
        y = PAD + spare
        for name in names:
            box = Box(schema.BY_NAME[name], keys_of(schema.BY_NAME[name]), PAD + number * (WIDTH + GAP_X), round(y))
            placed[name] = box
            y += box.height + GAP_Y + spare
    return placed


def owners() -> list[tuple[str, str]]:
    """Return which table owns the rows of which: pairs of owner and owned."""
    found = [(str(t.column(t.parent).of), t.name) for t in schema.TABLES if t.parent is not None]
    blocks = schema.BY_NAME["blocks"]
    return found + [(str(blocks.column(key).of), "blocks") for key in ("function_id", "queue_id", "instruction_id")]


def _line(owner: Box, owned: Box) -> str:
    a, b = (owner.x + WIDTH, owner.y + 12), (owned.x, owned.y + 12)
    back = b[0] < a[0]  # an instruction owns the blocks nested in it: the line goes back
    if back:
        a, b = (owner.x, owner.y + 20), (owned.x + WIDTH, owned.y + 20)
    bend = (b[0] - a[0]) // 2
    dash = ' stroke-dasharray="4 3"' if back else ""
    path = f"M{a[0]} {a[1]} C{a[0] + bend} {a[1]} {b[0] - bend} {b[1]} {b[0]} {b[1]}"
    return f'<path d="{path}" class="own"{dash} marker-end="url(#tip)"/>'


def _box(box: Box) -> str:
    hue = HUES.get(box.table.name, 0)
    tint = f"hsl({hue} 60% 88%)" if box.table.name in HUES else "#e6e8eb"
    lines = [
        f'<g transform="translate({box.x} {box.y})">',
        f"<title>{escape(box.table.meaning)}</title>",
        f'<rect width="{WIDTH}" height="{box.height}" rx="4" class="box"/>',
        f'<path d="M0 24V4a4 4 0 0 1 4 -4H{WIDTH - 4}a4 4 0 0 1 4 4V24Z" fill="{tint}"/>',
        f'<text x="8" y="16" class="name">{box.table.name}</text>',
    ]
    for number, (name, of) in enumerate(box.keys):
        y = 24 + LINE * (number + 1)
        parent = box.table.parent == name
        target = "itself" if of == box.table.name else of
        shown = name if of.removesuffix("s") in name or of == "any" else f"{name} → {target}"
        hue = HUES.get(of)
        fill = "#444" if hue is None else f"hsl({hue} 55% 32%)"
        weight = ' font-weight="bold"' if parent else ""
        lines.append(f'<text x="8" y="{y}" class="key" fill="{fill}"{weight}>{escape(shown)}</text>')
    return "\n".join([*lines, "</g>"])


def svg() -> str:
    """Return the picture."""
    placed = boxes()
    width = max(b.x for b in placed.values()) + WIDTH + PAD
    height = max(b.y + b.height for b in placed.values()) + PAD
    size = f'width="{width}" height="{height}"'
    style = (
        "text{font-family:ui-monospace,Menlo,Consolas,monospace}.name{font-size:13px;font-weight:bold;fill:#222}"
        ".key{font-size:12px}.box{fill:#fff;stroke:#8a929c}.own{fill:none;stroke:#7a828c;stroke-width:1.4}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size}>',
            "<title>tables and the keys between them</title>",
            f"<style>{style}</style>",
            '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">',
            '<path d="M0 0L8 4L0 8Z" fill="#7a828c"/></marker>',
            *(_line(placed[a], placed[b]) for a, b in owners()),
            *(_box(b) for b in placed.values()),
            "</svg>",
            "",
        ]
    )
