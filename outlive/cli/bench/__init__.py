"""``outlive bench``: measurements with the peer beside us in the same run."""
