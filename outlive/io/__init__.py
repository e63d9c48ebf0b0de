"""Files: reading and writing the formats that models come in."""
