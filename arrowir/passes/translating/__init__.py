"""The parts of `translate_nki_ast_to_bir`."""
