#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# contrib/gpu-bundle.sh makes an archive that is small enough.  Python alone unpacks it, and what is in it
# starts in a root that has CUDA's libraries, a shell and its tools, and nothing else.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

grep -q '^CUDA_LIBS = .*cudnn' "$PD_BUILD/Makefile" || test_skip_all "built without CUDA"
python3 -c 'import lzma, tarfile' || test_skip_all "python3 is absent"
command -v xz >/dev/null || test_skip_all "xz is absent"

test_ok "the archive is made, and is under 32 MB" '
	sh "$PD_SOURCE/contrib/gpu-bundle.sh" "$PD_BUILD" bundle
	[ "$(wc -c <bundle.tar.xz)" -lt 32000000 ]
'

test_ok "Python unpacks it, as it was" '
	mkdir -p root
	(cd root && python3 -m tarfile -e ../bundle.tar.xz)
	diff -r bundle root/bundle
'

# bring FILE...: puts programs into the root, and what they are linked with.
bring() {
	for file in "$@"; do
		file=$(command -v "$file")
		for needed in "$file" $(ldd "$file" | grep -o "/[^ ]*"); do
			mkdir -p "root$(dirname "$needed")"
			cp -L "$needed" "root$needed"
		done
	done
}

# loads PATTERN: prints the libraries of that name that pd-worker is linked with.
loads() {
	ldd "$PD_BUILD/bin/pd-worker" | grep -o "/[^ ]*" | grep -E "/lib($1)[^/]*$"
}

# libraries: puts those that every Linux has into the root, and CUDA, by links where the file system is the
# same.
libraries() {
	mkdir -p root/usr/local/cuda/lib64
	for library in $(loads "c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.(so"); do
		mkdir -p "root${library%/*}"
		cp -L "$library" "root$library"
	done
	for library in $(loads "cu|nv|nccl") "$(dirname "$(loads cudnn)")"/libcudnn*.so.9; do
		file=$(readlink -f "$library") into=root/usr/local/cuda/lib64/${library##*/}
		cp -l "$file" "$into" 2>/dev/null || cp "$file" "$into"
	done
}

if ! chroot / true 2>/dev/null; then
	test_skip "its first steps run in an empty root" "only root can try that"
	test_done
fi

# A machine without a GPU lacks nothing but that.
test_ok "its first steps run in an empty root, and miss nothing but a GPU" '
	bring sh bash env awk basename cat cksum cut date dirname free grep gzip head ldd ls mkdir mktemp mv nproc \
		rm sed seq sleep sort tail tar tee timeout touch tr wc
	mkdir -p root/tmp root/dev root/bin root/lib64
	for program in root/usr/bin/* root/usr/local/bin/*; do
		[ ! -f "$program" ] || [ -e "root/bin/${program##*/}" ] || cp "$program" root/bin/
	done
	cp -L /lib64/ld-linux-x86-64.so.2 root/lib64/
	libraries
	mknod -m 666 root/dev/null c 1 3 || : >root/dev/null
	for steps in "machine there" "arith kernels"; do
		status 1 env -i PATH=/bin:/usr/bin "$(command -v chroot)" root /bin/sh -c \
			"cd /bundle && sh run-here.sh -- sh gpu-first.sh $steps"
	done
	(cd root && tar xzf bundle/gpu-first.tar.gz)
	cat root/gpu-first/*.log
	grep -q "no GPU can be used" root/gpu-first/there.log
	! grep -q "libc.*not found" root/gpu-first/machine.log || false
	[ -e root/gpu-first/arith.good ] && [ -s root/gpu-first/kernels.bad ]
	grep -q "^not ok .*no GPU" root/gpu-first/kernels.log
'

test_done
