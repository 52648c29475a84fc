"""One launch: grid, block, arguments, and what arrays are assumed to hold."""
