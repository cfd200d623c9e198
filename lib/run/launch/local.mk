lib_libpddevice_a_SOURCES += lib/run/launch/channel.c lib/run/launch/channel.h \
	lib/run/launch/exchange.c lib/run/launch/exchange.h lib/run/launch/heartbeat.c lib/run/launch/heartbeat.h \
	lib/run/launch/launcher.c lib/run/launch/launcher.h lib/run/launch/fork.c \
	lib/run/launch/message.c lib/run/launch/message.h \
	lib/run/launch/packed.c lib/run/launch/packed.h \
	lib/run/launch/process.c lib/run/launch/process.h \
	lib/run/launch/task.c lib/run/launch/task.h
# The one file that knows where programs are installed: all others compile alike for any prefix.
lib/run/launch/libpddevice_a-process.$(OBJEXT): AM_CPPFLAGS += -DPD_LIBEXECDIR='"$(pkglibexecdir)"'
# With PMIx, or with what says that there is none: programs of several hosts.
lib_libpddevice_a_SOURCES += lib/run/launch/agent.c \
	lib/run/launch/exchange_server.c lib/run/launch/exchange_server.h lib/run/launch/hosts.c lib/run/launch/hosts.h \
	lib/run/launch/meeting.c lib/run/launch/meeting.h \
	lib/run/launch/other_launchers.c lib/run/launch/other_launchers.h \
	lib/run/launch/pmix/pmix.h lib/run/launch/place.h
if HAVE_PMIX
lib_libpddevice_a_SOURCES += lib/run/launch/pmix/pmix.c
lib/run/launch/pmix/libpddevice_a-%.$(OBJEXT): AM_CPPFLAGS += $(PMIX_CPPFLAGS)
else
lib_libpddevice_a_SOURCES += lib/run/launch/pmix/absent.c
endif
