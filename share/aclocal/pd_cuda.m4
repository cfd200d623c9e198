# PD_CUDA
# --with-cuda=yes|no|guess|DIR: the CUDA toolkit with cuBLAS and cuDNN.  An explicit wish that
# cannot be met is an error; a guess only says what it found.  --with-cuda-arch: which GPUs the
# kernels are compiled for.
# Substitutes CUDA_CPPFLAGS, CUDA_LDFLAGS, CUDA_LIBS, CUDA_GENCODE and NVCC; sets HAVE_CUDA for
# make.  The runtime is linked statically: it looks for the driver when it is first used, so
# that programs start where there is none.
AC_DEFUN([PD_CUDA], [
	AC_ARG_WITH([cuda], AS_HELP_STRING([--with-cuda=DIR],
		[CUDA toolkit with cuBLAS and cuDNN: yes, no, guess (default) or its folder]),
		[], [with_cuda=guess])
	AC_ARG_WITH([cuda-arch], AS_HELP_STRING([--with-cuda-arch=LIST],
		[GPUs to compile kernels for (default: "80 90"); newer ones take the last one's PTX]),
		[], [with_cuda_arch="80 90"])
	pd_cuda_found=no
	pd_cuda_missing=
	AS_IF([test "x$with_cuda" != xno], [
		AS_CASE([$with_cuda],
			[yes|guess], [pd_cuda_dir=${CUDA_HOME:-/usr/local/cuda} pd_path=$PATH],
			[pd_cuda_dir=$with_cuda pd_path=$with_cuda/bin
			 AS_IF([test ! -d "$with_cuda/include"], [AC_MSG_ERROR([--with-cuda=$with_cuda: \
no toolkit there: expected yes, no, guess or a folder with bin, include and lib64])])])
		pd_save_CPPFLAGS=$CPPFLAGS pd_save_LDFLAGS=$LDFLAGS pd_save_LIBS=$LIBS
		CUDA_CPPFLAGS="-isystem $pd_cuda_dir/include"
		CUDA_LDFLAGS="-L$pd_cuda_dir/lib64 -Wl,--enable-new-dtags,-rpath,$pd_cuda_dir/lib64"
		CUDA_LIBS="-ldl -lrt"
		CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS" LDFLAGS="$LDFLAGS $CUDA_LDFLAGS"
		AC_PATH_PROG([NVCC], [nvcc], [], [$pd_cuda_dir/bin:$pd_path])
		AS_IF([test -z "$NVCC"], [pd_cuda_missing="nvcc"])
		m4_foreach([pd_part], [[[cuda_runtime_api.h], [cudart_static], [cudaGetDeviceCount]],
				       [[cublasLt.h], [cublasLt], [cublasLtCreate]],
				       [[cudnn.h], [cudnn], [cudnnCreate]]],
			[PD_CUDA_PART(pd_part)])
		CPPFLAGS=$pd_save_CPPFLAGS LDFLAGS=$pd_save_LDFLAGS LIBS=$pd_save_LIBS
		AS_IF([test -z "$pd_cuda_missing"], [pd_cuda_found=yes])
	])
	AC_MSG_CHECKING([for the CUDA toolkit with cuBLAS and cuDNN])
	AS_IF([test $pd_cuda_found = yes], [AC_MSG_RESULT([$pd_cuda_dir])], [
		AC_MSG_RESULT([no${pd_cuda_missing:+ (missing: $pd_cuda_missing)}])
		AS_CASE([$with_cuda], [no|guess], [],
			[AC_MSG_ERROR([--with-cuda=$with_cuda: missing in $pd_cuda_dir: $pd_cuda_missing])])
		CUDA_CPPFLAGS= CUDA_LDFLAGS= CUDA_LIBS=
	])
	CUDA_GENCODE=
	AS_IF([test $pd_cuda_found = yes], [PD_CUDA_ARCH])
	AC_SUBST([CUDA_CPPFLAGS])
	AC_SUBST([CUDA_LDFLAGS])
	AC_SUBST([CUDA_LIBS])
	AC_SUBST([CUDA_GENCODE])
	AM_CONDITIONAL([HAVE_CUDA], [test $pd_cuda_found = yes])
])

# PD_CUDA_PART(HEADER, LIBRARY, FUNCTION)
AC_DEFUN([PD_CUDA_PART], [
	AC_CHECK_HEADER([$1], [
		AC_CHECK_LIB([$2], [$3], [CUDA_LIBS="-l$2 $CUDA_LIBS"],
			[pd_cuda_missing="$pd_cuda_missing lib$2"], [$CUDA_LIBS])],
		[pd_cuda_missing="$pd_cuda_missing $1"])
])

# Machine code for each GPU of the list, and PTX for the last.
AC_DEFUN([PD_CUDA_ARCH], [
	for pd_arch in $with_cuda_arch; do
		AS_CASE([$pd_arch], [[*[!0-9a-f]*|""]],
			[AC_MSG_ERROR([--with-cuda-arch: expected numbers such as "80 90", found "$with_cuda_arch"])])
		CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$pd_arch,code=sm_$pd_arch"
	done
	AS_IF([test -z "$CUDA_GENCODE"], [AC_MSG_ERROR([--with-cuda-arch: expected at least one])])
	CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$pd_arch,code=compute_$pd_arch"
	AC_MSG_CHECKING([whether $NVCC can compile for $with_cuda_arch])
	echo '__global__ void nothing(void) { }' >conftest.cu
	AS_IF([$NVCC $CUDA_GENCODE -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD 2>&1],
		[AC_MSG_RESULT([yes])],
		[AC_MSG_RESULT([no])
		 AC_MSG_ERROR([$NVCC cannot compile for $with_cuda_arch: see config.log])])
	rm -f conftest.cu conftest.o
])
