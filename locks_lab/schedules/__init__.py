"""Random worlds: schedules by a policy, worlds by a seed, and the runs of many seeds."""
