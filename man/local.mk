dist_man_MANS += man/pd-checkpoint.5
dist_man_MANS += man/pd-replay.1
dist_man_MANS += man/pd-profile.1 man/pd-run.1
