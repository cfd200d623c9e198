lib_libpddevice_a_SOURCES += \
	lib/device/cpu/additive_attention.c \
	lib/device/cpu/attention.c lib/device/cpu/attention.h \
	lib/device/cpu/attention_tiles.c \
	lib/device/cpu/axes.c \
	lib/device/cpu/batchnorm2d.c \
	lib/device/cpu/broadcast.c \
	lib/device/cpu/chunks.c \
	lib/device/cpu/conv2d.c lib/device/cpu/conv_transpose2d.c \
	lib/device/cpu/curves.c \
	lib/device/cpu/cpu.c lib/device/cpu/cpu.h \
	lib/device/cpu/dnn.h lib/device/cpu/dnnl2.h \
	lib/device/cpu/dropout.c \
	lib/device/cpu/eltwise.c \
	lib/device/cpu/embedding.c \
	lib/device/cpu/exp.h \
	lib/device/cpu/floats.c lib/device/cpu/floats.h \
	lib/device/cpu/groupnorm.c lib/device/cpu/half.c \
	lib/device/cpu/layout.c \
	lib/device/cpu/layernorm.c \
	lib/device/cpu/linear.c lib/device/cpu/linear_transposed.c \
	lib/device/cpu/lstm.c lib/device/cpu/lstm.h lib/device/cpu/lstm_gates.c \
	lib/device/cpu/lstm_gradients.c lib/device/cpu/lstm_lanes.c \
	lib/device/cpu/lstm_steps.c lib/device/cpu/lstm_way.c \
	lib/device/cpu/loss.c \
	lib/device/cpu/maxpool.c lib/device/cpu/maxpool.h lib/device/cpu/mse.c \
	lib/device/cpu/move.c lib/device/cpu/mul.c \
	lib/device/cpu/rope.c \
	lib/device/cpu/join.c \
	lib/device/cpu/net.c \
	lib/device/cpu/onednn.c lib/device/cpu/onednn.h \
	lib/device/cpu/primitive.c \
	lib/device/cpu/linear_blocked.c \
	lib/device/cpu/plain.c \
	lib/device/cpu/pool2d.c lib/device/cpu/prelu.c \
	lib/device/cpu/primitives.c \
	lib/device/cpu/quick.c \
	lib/device/cpu/softmax.c \
	lib/device/cpu/squares.c \
	lib/device/cpu/stream.c \
	lib/device/cpu/sum.c \
	lib/device/cpu/update.c lib/device/cpu/upsample.c \
	lib/device/cpu/reorder.c \
	lib/device/cpu/tile.c lib/device/cpu/tile.h lib/device/cpu/tile_kernels.h \
	lib/device/cpu/conv_linear.c
# oneDNN's threads are OpenMP's, and are counted with it; a square root that sets errno
# is not vectorised
lib_libpddevice_a_CFLAGS = $(AM_CFLAGS) -fopenmp -fno-math-errno
lib/device/cpu/libpddevice_a-%.$(OBJEXT): AM_CPPFLAGS += $(ONEDNN_CPPFLAGS)
PD_DEVICE_LIBS += -lgomp
