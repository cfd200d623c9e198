# PD_PMIX
# --with-pmix=yes|no|guess|DIR: PMIx, for ranks that a launcher such as mpirun or srun starts on
# several hosts.  An explicit wish that cannot be met is an error; a guess looks where the compiler
# does and where Debian has it, and says what it found.
# Substitutes PMIX_CPPFLAGS and PMIX_LIBS; sets HAVE_PMIX for make.
AC_DEFUN([PD_PMIX], [
	AC_ARG_WITH([pmix], AS_HELP_STRING([--with-pmix=DIR],
		[PMIx, for runs on several hosts: yes, no, guess (default) or its folder]),
		[], [with_pmix=guess])
	pd_pmix_found=no pd_pmix_missing= pd_pmix_where=
	AS_CASE([$with_pmix],
		[no], [],
		[yes|guess], [
			pd_pmix_debian=/usr/lib/`$CC -print-multiarch 2>/dev/null`/pmix2/include
			AS_IF([test -r "$pd_pmix_debian/pmix.h"],
				[PMIX_CPPFLAGS="-isystem $pd_pmix_debian"])],
		[PMIX_CPPFLAGS="-isystem $with_pmix/include"
		 pd_pmix_where="-L$with_pmix/lib -Wl,--enable-new-dtags,-rpath,$with_pmix/lib"
		 test -r "$with_pmix/include/pmix.h" || pd_pmix_missing="$with_pmix/include/pmix.h"])
	AS_IF([test "x$with_pmix" != xno && test -z "$pd_pmix_missing"], [
		pd_save_CPPFLAGS=$CPPFLAGS pd_save_LDFLAGS=$LDFLAGS
		CPPFLAGS="$CPPFLAGS $PMIX_CPPFLAGS" LDFLAGS="$LDFLAGS $pd_pmix_where"
		AC_CHECK_HEADER([pmix.h],
			[AC_CHECK_LIB([pmix], [PMIx_Fence_nb], [pd_pmix_found=yes],
				[pd_pmix_missing="libpmix"])],
			[pd_pmix_missing="pmix.h, Debian package libpmix-dev"])
		CPPFLAGS=$pd_save_CPPFLAGS LDFLAGS=$pd_save_LDFLAGS
	])
	AC_MSG_CHECKING([for PMIx])
	AS_IF([test $pd_pmix_found = yes], [
		# only by programs that call it, since it brings other libraries along
		PMIX_LIBS="$pd_pmix_where -Wl,--push-state,--as-needed -lpmix -Wl,--pop-state"
		AC_MSG_RESULT([yes])
	], [
		AC_MSG_RESULT([no${pd_pmix_missing:+ (missing: $pd_pmix_missing)}: runs are on one host])
		AS_CASE([$with_pmix], [no|guess], [],
			[AC_MSG_ERROR([--with-pmix=$with_pmix: missing: $pd_pmix_missing])])
		PMIX_CPPFLAGS= PMIX_LIBS=
	])
	AC_SUBST([PMIX_CPPFLAGS])
	AC_SUBST([PMIX_LIBS])
	AM_CONDITIONAL([HAVE_PMIX], [test $pd_pmix_found = yes])
])
