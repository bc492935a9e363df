"""Post-processing of released values: formulas, totals, HAVING, ORDER BY. It costs nothing."""
