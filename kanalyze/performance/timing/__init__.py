"""How long a launch takes: independent bounds, and what an SM needs for a block."""
