# PD_NCCL, after PD_CUDA
# --with-nccl=yes|no|guess|DIR: NCCL, for transfers between GPUs.  An explicit wish that cannot be
# met is an error; a guess looks where CUDA is and where the compiler does, and says what it found.
# Substitutes NCCL_CPPFLAGS, NCCL_LDFLAGS and NCCL_LIBS; sets HAVE_NCCL for make.
AC_DEFUN([PD_NCCL], [
	AC_ARG_WITH([nccl], AS_HELP_STRING([--with-nccl=DIR],
		[NCCL, for transfers between GPUs: yes, no, guess (default) or its folder]),
		[], [with_nccl=guess])
	pd_nccl_found=no
	pd_nccl_missing=
	AS_IF([test "x$with_nccl" != xno && test $pd_cuda_found = no],
		[pd_nccl_missing="the CUDA toolkit"])
	AS_IF([test "x$with_nccl" != xno && test $pd_cuda_found = yes], [
		AS_CASE([$with_nccl], [yes|guess], [],
			[NCCL_CPPFLAGS="-isystem $with_nccl/include"
			 NCCL_LDFLAGS="-L$with_nccl/lib -Wl,--enable-new-dtags,-rpath,$with_nccl/lib"])
		pd_save_CPPFLAGS=$CPPFLAGS pd_save_LDFLAGS=$LDFLAGS pd_save_LIBS=$LIBS
		CPPFLAGS="$CPPFLAGS $NCCL_CPPFLAGS $CUDA_CPPFLAGS"
		LDFLAGS="$LDFLAGS $NCCL_LDFLAGS $CUDA_LDFLAGS"
		AS_CASE([$with_nccl], [yes|guess], [],
			[test -r "$with_nccl/include/nccl.h" ||
				pd_nccl_missing="$with_nccl/include/nccl.h"])
		AS_IF([test -z "$pd_nccl_missing"], [AC_CHECK_HEADER([nccl.h],
			[AC_CHECK_LIB([nccl], [ncclCommInitRankConfig], [pd_nccl_found=yes],
				[pd_nccl_missing=libnccl], [$CUDA_LIBS])],
			[pd_nccl_missing=nccl.h])])
		CPPFLAGS=$pd_save_CPPFLAGS LDFLAGS=$pd_save_LDFLAGS LIBS=$pd_save_LIBS
	])
	AC_MSG_CHECKING([for NCCL])
	AS_IF([test $pd_nccl_found = yes], [
		NCCL_LIBS=-lnccl
		AC_MSG_RESULT([yes])
	], [
		AC_MSG_RESULT([no${pd_nccl_missing:+ (missing: $pd_nccl_missing)}: GPUs exchange through host memory])
		AS_CASE([$with_nccl], [no|guess], [],
			[AC_MSG_ERROR([--with-nccl=$with_nccl: missing: $pd_nccl_missing])])
		NCCL_CPPFLAGS= NCCL_LDFLAGS=
	])
	AC_SUBST([NCCL_CPPFLAGS])
	AC_SUBST([NCCL_LDFLAGS])
	AC_SUBST([NCCL_LIBS])
	AM_CONDITIONAL([HAVE_NCCL], [test $pd_nccl_found = yes])
])
