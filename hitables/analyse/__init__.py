"""Facts about programs: call graph, boxes, statistics."""
