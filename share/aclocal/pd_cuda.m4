# PD_CUDA
# --with-cuda=yes|no|guess|DIR: the CUDA toolkit with cuBLAS, cuDNN and NCCL.  An explicit
# wish that cannot be met is an error; a guess only says what it found.
# Substitutes CUDA_CPPFLAGS, CUDA_LDFLAGS, CUDA_LIBS and NVCC; sets HAVE_CUDA for make.
AC_DEFUN([PD_CUDA], [
	AC_ARG_WITH([cuda], AS_HELP_STRING([--with-cuda=DIR],
		[CUDA toolkit with cuBLAS, cuDNN and NCCL: yes, no, guess (default) or its folder]),
		[], [with_cuda=guess])
	pd_cuda_found=no
	pd_cuda_missing=
	AS_IF([test "x$with_cuda" != xno], [
		AS_CASE([$with_cuda],
			[yes|guess], [pd_cuda_dir=${CUDA_HOME:-/usr/local/cuda}],
			[pd_cuda_dir=$with_cuda])
		pd_save_CPPFLAGS=$CPPFLAGS pd_save_LDFLAGS=$LDFLAGS pd_save_LIBS=$LIBS
		CUDA_CPPFLAGS="-I$pd_cuda_dir/include"
		CUDA_LDFLAGS="-L$pd_cuda_dir/lib64 -Wl,-rpath,$pd_cuda_dir/lib64"
		CUDA_LIBS=
		CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS" LDFLAGS="$LDFLAGS $CUDA_LDFLAGS"
		AC_PATH_PROG([NVCC], [nvcc], [], [$pd_cuda_dir/bin:$PATH])
		AS_IF([test -z "$NVCC"], [pd_cuda_missing="nvcc"])
		m4_foreach([pd_part], [[[cuda_runtime_api.h], [cudart], [cudaGetDeviceCount]],
				       [[cublasLt.h], [cublasLt], [cublasLtCreate]],
				       [[cudnn.h], [cudnn], [cudnnCreate]],
				       [[nccl.h], [nccl], [ncclGetVersion]]],
			[PD_CUDA_PART(pd_part)])
		CPPFLAGS=$pd_save_CPPFLAGS LDFLAGS=$pd_save_LDFLAGS LIBS=$pd_save_LIBS
		AS_IF([test -z "$pd_cuda_missing"], [pd_cuda_found=yes])
	])
	AC_MSG_CHECKING([for the CUDA toolkit with cuBLAS, cuDNN and NCCL])
	AS_IF([test $pd_cuda_found = yes], [AC_MSG_RESULT([$pd_cuda_dir])], [
		AC_MSG_RESULT([no${pd_cuda_missing:+ (missing: $pd_cuda_missing)}])
		AS_CASE([$with_cuda], [no|guess], [],
			[AC_MSG_ERROR([--with-cuda=$with_cuda: missing in $pd_cuda_dir: $pd_cuda_missing])])
		CUDA_CPPFLAGS= CUDA_LDFLAGS= CUDA_LIBS=
	])
	AC_SUBST([CUDA_CPPFLAGS])
	AC_SUBST([CUDA_LDFLAGS])
	AC_SUBST([CUDA_LIBS])
	AM_CONDITIONAL([HAVE_CUDA], [test $pd_cuda_found = yes])
])

# PD_CUDA_PART(HEADER, LIBRARY, FUNCTION)
AC_DEFUN([PD_CUDA_PART], [
	AC_CHECK_HEADER([$1], [
		AC_CHECK_LIB([$2], [$3], [CUDA_LIBS="-l$2 $CUDA_LIBS"],
			[pd_cuda_missing="$pd_cuda_missing lib$2"])],
		[pd_cuda_missing="$pd_cuda_missing $1"])
])
