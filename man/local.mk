dist_man_MANS += man/pd-checkpoint.5
