lib_libpddevice_a_SOURCES += lib/job/job.c lib/job/job.h lib/job/message.c lib/job/phases.c lib/job/resume.c
