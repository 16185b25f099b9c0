/* The registry: one line per algorithm, read twice by vfdb.c. */
ALGORITHM(linear)
ALGORITHM(sfl)
ALGORITHM(checked)
ALGORITHM(tss)
ALGORITHM(rfc)
ALGORITHM(bit_vector)
ALGORITHM(tss_tries)
ALGORITHM(grid_of_tries)
