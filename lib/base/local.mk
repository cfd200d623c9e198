lib_libpd_a_SOURCES += \
	lib/base/activity.c lib/base/activity.h \
	lib/base/arena.c lib/base/arena.h \
	lib/base/array_limit.c lib/base/array_limit.h \
	lib/base/awake_clock.h \
	lib/base/buffer_pieces.h \
	lib/base/checksum.c lib/base/checksum.h \
	lib/base/clock.h \
	lib/base/completion.c \
	lib/base/container.h \
	lib/base/cost.h \
	lib/base/csv.c lib/base/csv.h \
	lib/base/directory.c lib/base/directory.h \
	lib/base/document_folder.c lib/base/document_folder.h \
	lib/base/drift.c lib/base/drift.h \
	lib/base/effort.h \
	lib/base/error.c lib/base/error.h \
	lib/base/event.c lib/base/event.h \
	lib/base/file.c lib/base/file.h \
	lib/base/file_kind.c lib/base/file_kind.h \
	lib/base/finite.h \
	lib/base/grid.c lib/base/grid.h \
	lib/base/half.h \
	lib/base/inline.h \
	lib/base/json.c lib/base/json.h \
	lib/base/json_limit.c lib/base/json_limit.h \
	lib/base/lines.c lib/base/lines.h \
	lib/base/map.c lib/base/map.h \
	lib/base/median.c lib/base/median.h \
	lib/base/mem.c lib/base/mem.h \
	lib/base/minmax.h \
	lib/base/names.c lib/base/names.h \
	lib/base/number.c \
	lib/base/opt.c lib/base/opt.h \
	lib/base/opt_needs.c lib/base/opt_needs.h \
	lib/base/opt_values.c \
	lib/base/processors.h \
	lib/base/program.c lib/base/program.h \
	lib/base/progress_bar.c lib/base/progress_bar.h \
	lib/base/pulse.c lib/base/pulse.h \
	lib/base/rng.h \
	lib/base/rows.c lib/base/rows.h \
	lib/base/shared_memory.c lib/base/shared_memory.h \
	lib/base/sort.h \
	lib/base/svg.c lib/base/svg.h
