lib_libpd_a_SOURCES += \
	lib/profile/memory_model.def lib/profile/document.c lib/profile/degrees.c lib/profile/layers.c lib/profile/layers.h \
	lib/profile/profile.c lib/profile/profile.h
