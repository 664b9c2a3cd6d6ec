"""What each opcode does: one file per family, each found and imported by the registry."""
