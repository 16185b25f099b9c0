"""Properties of programs: call graph, boxes, weights, which rules may be reordered or removed."""
