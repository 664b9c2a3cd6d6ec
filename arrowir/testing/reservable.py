"""Drawing modules for the reservation pass: architectures, pinned locations, what is reserved already."""

from typing import Any

from arrowir.testing import bir
from arrowir.testing.bir import Json
from arrowir.testing.drawing import Source

LITERAL = "EvalAccelReservedLoc"
ARCHS = (
    "gen3",
    "core_v4",
    "trn2",
    "cayman",
    "gen4",
    "mariana",
    "trn3",
    "sunda",
    "gen2",
    "trn1",
    "inf2",
    "trainium",
    "inferentia",
    "tonga",
    "inf1",
    "core_v5",
    "trn4",
    "GEN3",
    "gen9",
)
BYTES = (8, 64, 100, 1, 2048, 4095, 0, 16_384)
ADDRESSES = (0, 16, 64, 16_384, 1000, 196_608 - 8, 229_376 - 8, 262_144 - 8, 229_376 - 64, 300_000)


class ReservationDrawer:
    """Draws one module.

    Parameters
    ----------
    source : Source
        What it draws from.

    Examples
    --------
    >>> from arrowir.testing.drawing import Simplest
    >>> ReservationDrawer(Simplest()).draw()["arch"]
    'gen3'
    """

    def __init__(self, source: Source) -> None:
        self.source = source

    def draw(self) -> Json:
        """Return the document."""
        s = self.source
        document: Json = {"version": 2}
        if not s.chance(4):
            # mostly one for which something is to do
            document["arch"] = s.of(ARCHS[:7]) if not s.chance(35) else s.of(ARCHS)
        count = s.of((1,) * 10 + (0, 2))
        document["functions"] = [self._function(f"sg000{number}") for number in range(count)]
        if s.chance(60):
            kernels = [self._function("k")] if s.chance(25) else []
            document["nki_functions"] = {"functions": kernels}
        s.sprinkle(document, (("queues", ([],)), ("attributes", ({"neuron_core_id": 0},)), ("zz", (None,))), 50)
        return s.order({key: document[key] for key in sorted(document)})

    def _function(self, name: str) -> Json:
        s = self.source
        s.begin()
        allocations = [self._item(number) for number in range(s.between(0, 4))]
        if s.chance(25):
            allocations.insert(s.digit(len(allocations) + 1), self._existing())
            if s.chance(15):
                allocations.append(self._existing())
        if s.chance(15):
            allocations.append(bir.register("r0"))
        rows = [bir.instruction(f"I-{number}", "NoOp", "SP", [], [], full_keys=False) for number in range(s.digit(3))]
        blocks = [bir.block("Block1", rows)] if s.chance(80) else []
        return s.unknown(bir.function(name, allocations, blocks), 8)

    def _item(self, number: int) -> Json:
        s = self.source
        memory = s.of(("SB", "SB", "SB", "PSUM", "DRAM"))
        places = [self._place(f"t{number}" + ".b" * extra, memory, extra) for extra in range(s.of((1, 1, 2, 0)))]
        item = bir.memory_set(
            f"t{number}_set",
            places,
            dtype="uint8",
            shape=[128, 8],
            tensor_class=bir.TENSOR_CLASS[memory],
            full_keys=s.chance(40),
        )
        return s.order(s.unknown(item, 5), 20)

    def _place(self, name: str, memory: str, number: int) -> Json:
        s = self.source
        more: dict[str, Any] = {}
        if s.chance(50):
            more["pinned"] = True
        if s.chance(10):
            more["runtime_reserved"] = True
        return bir.location(
            name if not s.chance(6) else LITERAL,
            memory,
            [s.of((128, 32, 64)), s.of(BYTES)],
            addr=s.of(ADDRESSES),
            base=s.of((0, 0, 32, 64)),
            allocated=s.chance(60),
            tensor_id=number,
            full_keys=s.chance(40),
            **more,
        )

    def _existing(self) -> Json:
        """Return a set of the name that the pass records, with or without locations and tensor ids."""
        s = self.source
        places: list[Json] = []
        for number in range(s.of((0, 1, 1, 2, 3))):
            name = LITERAL if s.chance(25) else f"e{number}"
            place = bir.location(name, "SB", [128, 8], addr=64 * number, tensor_id=s.of((number, 0, 7, -1, number)))
            if s.chance(20):
                del place["tensor_id"]
            if s.chance(40):
                place = bir.record(**{**place, "runtime_reserved": s.chance(70)})
            places.append(place)
        item = bir.memory_set(f"{LITERAL}_set", places, dtype="uint8", shape=[128, 8], full_keys=s.chance(50))
        if s.chance(30):
            item["tensorId2MemLocSize"] = s.of((0, 1, 9))
        if s.chance(20):
            del item["tensorId2MemLocSize"]
        return s.order(s.unknown(item, 10), 20)
