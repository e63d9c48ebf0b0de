"""Ops, a file a family. An op is one place: public function, primitive, shape rule, vjp, jvp, vmap rule, reference kernel."""
