"""The stages in which the compiler inlines a kernel, and what does the same here: rules, table operations, tests."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One stage of the compiler's pass."""

    letter: str
    """What the compiler's description calls it: a letter, or the function that it is a part of."""
    compiler: str
    """What happens there."""
    rules: tuple[str, ...]
    here: str
    """What happens here, for all call-sites of the batch at once."""
    operations: tuple[str, ...]
    """Functions below `arrowir` that do it, as `module:name`."""
    tests: tuple[str, ...]
    """Tests that pin it, as `file below tests::name`."""


_INLINING = "passes.inlining"
_RULES = "rules/test_inline_nki_kernel"

STAGES: tuple[Stage, ...] = (
    Stage(
        "a",
        "the kernel's function goes alone into an empty module of the caller's version and architecture; "
        "that is written as JSON and read again",
        ("N1", "N3"),
        "each distinct kernel is cut out of the batch once, inner kernels before outer ones; all kernels "
        "of one level are one scratch batch",
        (f"{_INLINING}.canonical:canonicalise", f"{_INLINING}.kernel_calls:levels"),
        (
            f"{_RULES}.py::test_n3_the_copy_taken_literally_through_json",
            f"{_RULES}.py::test_n3_the_modules_own_function_is_not_unrolled",
            f"{_RULES}_nesting.py::test_n1_a_diamond_is_no_cycle_and_each_body_is_made_once",
        ),
    ),
    Stage(
        "b",
        "three passes run over that module: loops are unrolled, generic indirect accesses lowered, "
        "constants propagated",
        ("N3",),
        "the scratch batch is unrolled, generic indirect accesses are lowered and constants are propagated in it, as "
        "the passes of these names would do it",
        ("passes.unroll:expand", "passes.lower_generic_indirect:lower", "passes.constant_propagate:propagate"),
        (
            f"{_RULES}.py::test_n3_the_body_is_unrolled_and_the_shard_id_is_an_option",
            f"{_RULES}_nesting.py::test_n3_u3_inner_bodies_are_unrolled_with_the_loops_around_their_call_site",
            "rules/test_lower_generic_indirect.py::test_g1_n3_kernels_are_lowered_after_unrolling",
            "rules/test_constant_propagate_dead_code.py::test_n3_kernels_are_propagated_in_their_copies",
        ),
    ),
    Stage(
        "c",
        "the function is looked up again by its name; not to find it is an error",
        ("N3",),
        "the rows of the copies are put behind those of the batch, and it is noted where each body stands",
        (f"{_INLINING}.extended:Extended.append", f"{_INLINING}.kernel_bodies:Bodies.of"),
        (f"{_RULES}.py::test_n3_a_callee_that_is_gone_after_unrolling_fails_the_module",),
    ),
    Stage(
        "d",
        "two maps are made from the call-site's operands and recorded names, one for inputs and one for "
        "outputs: what each parameter stands for",
        ("N4", "N5", "N6"),
        "argument maps and operands of all call-sites side by side; parameters are bound by entry, then by"
        " position, with sorts and gathers",
        (f"{_INLINING}.binding:bind",),
        (
            f"{_RULES}_binding.py::test_n4_both_sides_name_a_location_or_a_set",
            f"{_RULES}_binding.py::test_n4_what_has_no_entry_binds_by_position",
            f"{_RULES}_binding.py::test_n5_m10_actuals_that_are_called_like_parameters_are_not_captured",
            f"{_RULES}_binding.py::test_n6_the_last_outputs_are_scratchpads",
        ),
    ),
    Stage(
        "e",
        "the address of the call-site's output in SBUF is taken: there the kernel's own memory will begin "
        "(the description has no heading for it)",
        ("N7",),
        "the base of each call-site is one gather: its scratchpad's address, or that of its first output in SBUF",
        (f"{_INLINING}.binding:bind",),
        (
            f"{_RULES}_memory.py::test_n7_the_scratchpads_address_is_added",
            f"{_RULES}_memory.py::test_n7_without_a_scratchpad_the_first_sb_output",
            f"{_RULES}_nesting_storage.py::test_n7_bases_add_up",
        ),
    ),
    Stage(
        "f",
        "each set of the kernel is made again in the caller as `<call-site>:<set>`, with its origin "
        "marked, and each location in it; addresses in SBUF are moved by the base, all others stay; a "
        "kernel source that is none of three is an error",
        ("N8", "N9"),
        "runs of sets, locations and registers are appended to their functions; one expression adds the "
        "base where the type is SB; names are prefixed as bytes",
        (f"{_INLINING}.splice:splice", f"{_INLINING}.binding:check_memory", f"{_INLINING}.kernel_calls:kernel_source"),
        (
            f"{_RULES}_memory.py::test_n8_names_origin_and_the_rest",
            f"{_RULES}_memory.py::test_n8_other_memory_keeps_its_address_and_bank",
            f"{_RULES}_memory.py::test_n8_the_end_is_checked_against_the_capacity",
            f"{_RULES}.py::test_n9_an_unknown_kernel_source",
        ),
    ),
    Stage(
        "g",
        "each instruction is cloned as `<call-site>_<name>` and put before the call-site; its operands are"
        " rewired (below), edges that unrolling has left are re-made, branches go to the cloned blocks, "
        "two scope bits are cleared",
        ("N10", "N12", "N14"),
        "instructions are laid out as runs, callers' rows and bodies by turns; keys shift by a constant "
        "for each copy; edges around call-sites are expanded from roots and sinks",
        (
            f"{_INLINING}.layout:place",
            f"{_INLINING}.splice:splice",
            f"{_INLINING}.call_edges:rewrite",
            f"{_INLINING}.free_names:free_names",
        ),
        (
            f"{_RULES}.py::test_n12_the_body_stands_in_the_place_of_the_call_site",
            f"{_RULES}.py::test_n10_attributes_are_copied_unchanged",
            f"{_RULES}.py::test_n10_opt_in_passes",
            f"{_RULES}_edges.py::test_n14_edges_inside_a_body_are_cloned",
            f"{_RULES}_edges.py::test_n14_edges_of_the_call_site_go_to_every_root",
            f"{_RULES}_blocks.py::test_n13_branches_inside_go_to_the_cloned_blocks",
        ),
    ),
    Stage(
        "h",
        "a branch `br_to_continuation` leads from the body to a block with what stood behind the call-site",
        ("N13", "N20"),
        "bodies of several blocks are closed once each, with their continuation; one sort key puts blocks "
        "and halves of split blocks in order, for any number of call-sites in a block",
        (f"{_INLINING}.closing:close", f"{_INLINING}.layout:lay_out"),
        (
            f"{_RULES}_blocks.py::test_n13_the_block_is_split_around_the_call_site",
            f"{_RULES}_blocks.py::test_n13_a_return_becomes_a_branch_and_all_else_of_it_stays",
            f"{_RULES}_blocks_around.py::test_n20_one_after_the_other",
            f"{_RULES}_nesting.py::test_n13_bodies_that_split_at_three_levels",
        ),
    ),
    Stage(
        "`rewireMemlocs`, arguments",
        "an operand that names a parameter is pointed at the caller's location or register",
        ("N5", "N11"),
        "a parameter is an entry in the array that gives the new id of each old one: all are replaced by "
        "the same lookup",
        ("edit:Edit.bind",),
        (
            f"{_RULES}_binding.py::test_n11_every_kind_of_reference",
            f"{_RULES}_binding.py::test_n5_n11_two_call_sites_bind_each_for_itself",
            f"{_RULES}_binding.py::test_n4_registers_bind_through_the_maps",
        ),
    ),
    Stage(
        "`rewireMemlocs`, the rest",
        "an operand that names memory of the kernel is pointed at what was made again, which is found by "
        "its prefixed name",
        ("N11",),
        "keys of a clone shift by where its copy of the kernel's rows has come to stand; no name is looked up",
        ("edit:Edit.look_into",),
        (
            f"{_RULES}_binding.py::test_n11_offsets_patterns_and_dtypes_stay",
            f"{_RULES}_nesting_storage.py::test_n11_r2_locations_sets_and_owners",
        ),
    ),
    Stage(
        "`rewireMemlocs`, inside",
        "registers of dynamic access patterns follow, and what is nested in an instruction is done likewise",
        ("N11",),
        "registers and axes in text are rows of `references`, whose keys are copied like any other",
        ("edit:Edit.build",),
        (
            f"{_RULES}_nesting_storage.py::test_n11_registers_and_dynamic_access_patterns",
            f"{_RULES}_binding.py::test_n11_references_in_unrolled_bodies",
            f"{_RULES}_binding.py::test_n11_arguments_of_a_call_in_the_body",
        ),
    ),
)
"""The stages (a) to (h) of lowering a call-site, and what rewiring an operand consists of."""


def table() -> str:
    """Return the stages as a table."""
    lines = ["| stage | in the compiler | rules | here | table operation | pinned by |", "|---|---|---|---|---|---|"]
    for stage in STAGES:
        name = f"({stage.letter})" if len(stage.letter) == 1 else stage.letter
        operations = "<br>".join(f"`{operation.replace(':', '.')}`" for operation in stage.operations)
        tests = "<br>".join(f"`{test}`" for test in stage.tests)
        cells = (name, stage.compiler, ", ".join(stage.rules), stage.here, operations, tests)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
