"""What `unroll` is made of: loops, iterations, expressions over them, edges, tables."""
