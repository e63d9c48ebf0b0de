"""The lazy graph: handles, nodes, primitives, types, and the evaluation that turns them into command buffers."""
