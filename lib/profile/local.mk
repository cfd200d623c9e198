lib_libpd_a_SOURCES += \
	lib/profile/degrees.c \
	lib/profile/document.c \
	lib/profile/layers.c lib/profile/layers.h \
	lib/profile/memory_model.def \
	lib/profile/profile.c lib/profile/profile.h \
	lib/profile/rounds.c lib/profile/rounds.h \
	lib/profile/spread.c lib/profile/spread.h
