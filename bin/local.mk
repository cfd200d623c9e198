bin_PROGRAMS += bin/pd-plan
bin_pd_plan_SOURCES = bin/pd-plan.c
bin_pd_plan_LDADD = $(PD_LIBS)
