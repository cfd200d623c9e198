dist_man_MANS += man/pd-checkpoint.5 man/pd-export.1
dist_man_MANS += man/pd-replay.1
dist_man_MANS += man/pd-profile.1 man/pd-run.1
dist_man_MANS += man/pd-data.5 man/pd-device.5 man/pd-machine.5 man/pd-model.5 man/pd-plan.5 man/pd-profile.5 man/pd-topology.5 man/pd-trace.5 \
	man/pd.7 man/pd-machines.7 man/pd-reproduce.7 man/pd-training.7 man/pd-tutorial.7
dist_man_MANS += man/pd-model.1
dist_man_MANS += man/pd-plan.1
dist_man_MANS += man/pd-schedule.1 man/pd-schedule.5 man/pd-topo.1
