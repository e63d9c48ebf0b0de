"""The checker: programs under simulated schedules, oracles, explorers, mutants, reports."""
