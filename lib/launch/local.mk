lib_libpd_a_SOURCES += lib/launch/channel.c lib/launch/channel.h \
	lib/launch/exchange.c lib/launch/exchange.h lib/launch/heartbeat.c lib/launch/heartbeat.h \
	lib/launch/launcher.c lib/launch/launcher.h lib/launch/fork.c \
	lib/launch/message.c lib/launch/message.h \
	lib/launch/packed.c lib/launch/packed.h \
	lib/launch/process.c lib/launch/process.h \
	lib/launch/task.c lib/launch/task.h
# The one file that knows where programs are installed: all others compile alike for any prefix.
lib/launch/process.$(OBJEXT): AM_CPPFLAGS += -DPD_LIBEXECDIR='"$(pkglibexecdir)"'
# With PMIx, or with what says that there is none: programs of several hosts.
lib_libpddevice_a_SOURCES += lib/launch/agent.c \
	lib/launch/exchange_server.c lib/launch/exchange_server.h lib/launch/hosts.c lib/launch/hosts.h \
	lib/launch/meeting.c lib/launch/meeting.h \
	lib/launch/other_launchers.c lib/launch/other_launchers.h \
	lib/launch/pmix/pmix.h lib/launch/place.h
if HAVE_PMIX
lib_libpddevice_a_SOURCES += lib/launch/pmix/pmix.c
lib/launch/pmix/libpddevice_a-%.$(OBJEXT): AM_CPPFLAGS += $(PMIX_CPPFLAGS)
else
lib_libpddevice_a_SOURCES += lib/launch/pmix/absent.c
endif
