lib_libpddevice_a_SOURCES += \
	lib/run/job/job.c lib/run/job/job.h \
	lib/run/job/message.c \
	lib/run/job/phases.c \
	lib/run/job/recipe.c lib/run/job/recipe.h \
	lib/run/job/resume.c
