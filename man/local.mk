dist_man_MANS += man/pd-checkpoint.5
dist_man_MANS += man/pd-replay.1
