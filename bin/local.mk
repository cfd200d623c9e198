bin_PROGRAMS += bin/pd-model
bin_pd_model_SOURCES = bin/pd-model.c
bin_pd_model_LDADD = $(PD_LIBS)

bin_PROGRAMS += bin/pd-plan
bin_pd_plan_SOURCES = bin/pd-plan.c
bin_pd_plan_LDADD = $(PD_LIBS)

bin_PROGRAMS += bin/pd-run
bin_pd_run_SOURCES = bin/pd-run.c
bin_pd_run_LDADD = $(PD_DEVICE_LIBS)

# beside pd-run in the build tree; installed where users do not look
pkglibexec_PROGRAMS = bin/pd-worker
bin_pd_worker_SOURCES = bin/pd-worker.c
bin_pd_worker_LDADD = $(PD_DEVICE_LIBS)

bin_PROGRAMS += bin/pd-profile
bin_pd_profile_SOURCES = bin/pd-profile.c
bin_pd_profile_LDADD = $(PD_DEVICE_LIBS)
bin_PROGRAMS += bin/pd-replay
bin_pd_replay_SOURCES = bin/pd-replay.c
bin_pd_replay_LDADD = $(PD_LIBS)
bin_PROGRAMS += bin/pd-topo
bin_pd_topo_SOURCES = bin/pd-topo.c
bin_pd_topo_LDADD = $(PD_DEVICE_LIBS)
bin_PROGRAMS += bin/pd-schedule
bin_pd_schedule_SOURCES = bin/pd-schedule.c
bin_pd_schedule_LDADD = $(PD_LIBS)
bin_PROGRAMS += bin/pd-export
bin_pd_export_SOURCES = bin/pd-export.c
bin_pd_export_LDADD = $(PD_LIBS)
