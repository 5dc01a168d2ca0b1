"""From a plan to a workdir: the loop, its state, what it leaves."""
