lib_libpd_a_SOURCES += \
	lib/doors/machine/machine.c lib/doors/machine/machine.h \
	lib/doors/machine/nccl.c lib/doors/machine/server.c lib/doors/machine/server.h \
	lib/doors/machine/smi.c
nodist_lib_libpd_a_SOURCES += lib/doors/machine/folder.h
BUILT_SOURCES += lib/doors/machine/folder.h
CLEANFILES += lib/doors/machine/folder.h
lib/doors/machine/machine.$(OBJEXT): lib/doors/machine/folder.h
lib/doors/machine/folder.h: Makefile
	@$(MKDIR_P) lib/doors/machine
	$(AM_V_GEN)echo '#define PD_MACHINES_FOLDER "$(pkgdatadir)/machines"' >$@
