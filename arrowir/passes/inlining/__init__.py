"""What `inline_nki_kernel` is made of: call-sites, bindings, bodies, edges."""
