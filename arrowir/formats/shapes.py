"""The objects of a BIR document as the reader and the writer know them."""

from collections.abc import Iterable

from arrowir import schema
from arrowir.formats.members import Shape, table_shape

MODULE = table_shape(
    "modules",
    "a module",
    required=("functions",),
    known={"attributes": dict, "revision": str, "artifact_path": str},
)
NKI_FUNCTIONS = Shape("an object, a list or null", ("layout", "extra"), {}, frozenset({"functions"}))
FUNCTION = table_shape("functions", "a function", known={"origin": str})
QUEUE = table_shape("queues", "a queue")
BLOCK = table_shape("blocks", "a block", required=("instructions",), known={"origin": str})

SET = table_shape(
    "sets",
    "a memory location set",
    required=("name", "kind"),
    known={
        "partition_dim": int,
        "file": str,
        **dict.fromkeys(("no_spill", "do_not_spill", "do_not_rotate", "volatile", "virtual", "user_allocated"), bool),
    },
)
LOCATION = table_shape(
    "locations",
    "a memory location",
    required=("name", "type", "addr", "dims"),
    known={
        **dict.fromkeys(("table_entry_id", "var_id", "memLocSetId", "pack_id_hint"), int),
        **dict.fromkeys(("kind", "addr_space", "alloced_func", "remote_writer_func", "origin"), str),
        **dict.fromkeys(
            ("user_allocated", "location_alt", "written_by_another_core", "is_shared_post_dram_alloc"), bool
        ),
    },
    references={"pointer_ref_memloc": "locations"},
)
REGISTER = table_shape("registers", "a storage object")

_OF_KERNEL_CALLS = frozenset({"func", "func_args", "func_outs"})
_OF_CALLS = frozenset({"arguments"})


def _instruction(what: str, children: Iterable[str], **known: type) -> Shape:
    return table_shape(
        "instructions",
        what,
        children=frozenset(children),
        # `ins` and `outs` may be missing: no operands, which is another thing than an empty list.
        required=("name", "opcode", "engine"),
        known={"origin": str, "loopnest": list, "order": list, "predicates": list, **known},
        references={"associate_branch": "instructions"},
        expressions=True,
    )


_ALL = frozenset(schema.BY_NAME["instructions"].children)
INSTRUCTION = _instruction("an instruction", _ALL - _OF_KERNEL_CALLS - _OF_CALLS)
KERNEL_CALL = _instruction("a call-site", _ALL - _OF_CALLS, sb_buf_shape=list, psum_buf_shape=list)
CALL = _instruction("a call", _ALL - _OF_KERNEL_CALLS)

OPERAND = table_shape(
    "operands",
    "an operand",
    more={"ap": ("pattern_id", "pattern")},
    children=frozenset({"memref", "memsetref", "regref"}),
    known={
        "access_shape": list,
        "addrs": list,
        "value_array": list,
        "value_list": list,
        "dynamic_ap_info": dict,
        "tensor_indirect_arg_id": int,
        "const_sub_tensor_id": int,
        "is_regloc_offset": bool,
    },
    references={"reg_ap_offset": "registers", "reg_sub_tensor_id": "registers", "memref_owner_func": "functions"},
    expressions=True,
)
LOOP = table_shape("loops", "an axis", expressions=True)
SYNC_INFO = Shape("an object", ("layout", "extra"), {}, frozenset({"on_wait", "on_update"}))
WAIT = table_shape("semaphores", "a wait", more={"wait_value": ("value", "int")}, children=frozenset({"from"}))
UPDATE = table_shape("semaphores", "an update", more={"update_value": ("value", "int")}, children=frozenset({"from"}))
