lib_libpd_a_SOURCES += \
	lib/schedule/as_order.c lib/schedule/as_order.h \
	lib/schedule/buffer_counts.c lib/schedule/buffer_counts.h \
	lib/schedule/check.c lib/schedule/check.h \
	lib/schedule/check_exchanges.c \
	lib/schedule/check_microbatch.c \
	lib/schedule/check_rank.c lib/schedule/check_rank.h \
	lib/schedule/compact.c lib/schedule/compact.h \
	lib/schedule/count.c lib/schedule/count.h \
	lib/schedule/cursor.c lib/schedule/cursor.h \
	lib/schedule/evaluation.c lib/schedule/evaluation.h \
	lib/schedule/file.c lib/schedule/file.h \
	lib/schedule/list.c lib/schedule/list.h \
	lib/schedule/memory.c lib/schedule/memory.h \
	lib/schedule/op_kind.def \
	lib/schedule/pattern.c lib/schedule/pattern.h \
	lib/schedule/pattern_1f1b.c \
	lib/schedule/pattern_block.c \
	lib/schedule/pattern_interleaved.c \
	lib/schedule/pattern_nf1b.c \
	lib/schedule/pattern_ordered.c \
	lib/schedule/pattern_pairs.c \
	lib/schedule/pattern_v.c \
	lib/schedule/peaks.c lib/schedule/peaks.h \
	lib/schedule/peers.c lib/schedule/peers.h \
	lib/schedule/price.c lib/schedule/price.h \
	lib/schedule/schedule.c lib/schedule/schedule.h \
	lib/schedule/shape.c lib/schedule/shape.h \
	lib/schedule/slot_table.c lib/schedule/slot_table.h \
	lib/schedule/table_door.h \
	lib/schedule/tick.c lib/schedule/tick.h \
	lib/schedule/write.c
