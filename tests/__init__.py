"""The tests of Outlive; a package, so that shared helpers are imported as ``tests.<room>``."""
