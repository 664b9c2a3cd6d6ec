"""Lowering of generic indirect accesses: what they mean, and the chains that compute it."""
