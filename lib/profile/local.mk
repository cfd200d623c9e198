lib_libpd_a_SOURCES += \
	lib/profile/degrees.c \
	lib/profile/device.c lib/profile/device.h \
	lib/profile/document.c \
	lib/profile/layers.c lib/profile/layers.h \
	lib/profile/memory_model.def \
	lib/profile/profile.c lib/profile/profile.h \
	lib/profile/rounds.c lib/profile/rounds.h \
	lib/profile/spread.c lib/profile/spread.h
nodist_lib_libpd_a_SOURCES += lib/profile/folder.h
BUILT_SOURCES += lib/profile/folder.h
CLEANFILES += lib/profile/folder.h
lib/profile/device.$(OBJEXT): lib/profile/folder.h
lib/profile/folder.h: Makefile
	@$(MKDIR_P) lib/profile
	$(AM_V_GEN)echo '#define PD_DEVICES_FOLDER "$(pkgdatadir)/devices"' >$@
