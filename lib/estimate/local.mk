lib_libpd_a_SOURCES += \
	lib/estimate/cost.c lib/estimate/cost.h lib/estimate/device.c lib/estimate/device.h \
	lib/estimate/estimate.c lib/estimate/estimate.h lib/estimate/exchange.c lib/estimate/exchange.h \
	lib/estimate/fit.c lib/estimate/kind_cost.def lib/estimate/products.c lib/estimate/split.c \
	lib/estimate/split.h
nodist_lib_libpd_a_SOURCES += lib/estimate/folder.h
BUILT_SOURCES += lib/estimate/folder.h
CLEANFILES += lib/estimate/folder.h
lib/estimate/device.$(OBJEXT): lib/estimate/folder.h
lib/estimate/folder.h: Makefile
	@$(MKDIR_P) lib/estimate
	$(AM_V_GEN)echo '#define PD_DEVICES_FOLDER "$(pkgdatadir)/devices"' >$@
