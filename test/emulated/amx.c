// SPDX-License-Identifier: Apache-2.0
/*
 * Gives a process the matrix instructions (AMX) that its processor lacks, so
 * that oneDNN's use of them can be tested anywhere on x86-64 with
 * AVX512-BF16.  It is preloaded (test/t4021-amx.sh).
 *
 * The instructions raise SIGILL here; a handler decodes and executes them on
 * tiles that each thread has in memory.  oneDNN asks the processor by CPUID,
 * which does not trap: the environment variable PD_AMX_PATCH lists, in
 * hexadecimal, where the library's file has a CPUID or XGETBV, and each becomes
 * UD2, which the handler answers, too.  Reference: Intel's Software Developer's
 * Manual, volume 2.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <errno.h>
#include <immintrin.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, MOST_PATCHES = 256 };
enum { XTILECFG = 1 << 17, XTILEDATA = 1 << 18 };
enum { GET_PERMISSION = 0x1022, REQUEST_PERMISSION = 0x1023 }; /* arch_prctl() */

/* The tile configuration as LDTILECFG reads it. */
struct config {
	uint8_t palette, start_row, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
};

struct tiles {
	struct config config;
	_Alignas(64) uint8_t data[TILES][ROWS][ROW_BYTES];
};

static __thread struct tiles tiles __attribute__((tls_model("initial-exec")));

static const uint8_t *patched[MOST_PATCHES];
static int patches;
static int products; /* products computed by all threads */

/* A VEX instruction of map 0F38 with its operands. */
struct instruction {
	int opcode, prefix; /* prefix: 0 none, 1 66, 2 F3, 3 F2 */
	int reg, rm, vvvv;
	bool memory;
	uint8_t *address; /* the memory operand's address, for a tile without the stride */
	int64_t stride;
	int bytes;
};

static int64_t general(const ucontext_t *context, int number)
{
	static const int of[16] = {
		REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
		REG_R8,	 REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15
	};

	return context->uc_mcontext.gregs[of[number]];
}

/* Decodes the memory operand behind ModRM at p; returns the bytes of SIB and
 * displacement. */
static int decode_memory(const ucontext_t *context, const uint8_t *p, int b, int x, bool tile,
			 struct instruction *i)
{
	int mod = p[0] >> 6, rm = p[0] & 7, bytes = 0;
	int64_t address = 0;
	bool no_base = false;

	if (rm == 4) {
		int base = (p[1] & 7) | b << 3, index = ((p[1] >> 3) & 7) | x << 3;
		int64_t scaled = index == 4 ? 0 : general(context, index) * (1 << (p[1] >> 6));

		bytes = 1;
		no_base = (p[1] & 7) == 5 && mod == 0;
		address = no_base ? 0 : general(context, base);
		i->stride = scaled;
		if (!tile)
			address += scaled;
	} else if (rm == 5 && mod == 0) {
		return -1; /* relative to RIP: oneDNN does not make these */
	} else {
		address = general(context, rm | b << 3);
	}
	if (mod == 1) {
		address += (int8_t)p[1 + bytes];
		bytes += 1;
	} else if (mod == 2 || no_base) {
		int32_t displacement;

		memcpy(&displacement, p + 1 + bytes, 4);
		address += displacement;
		bytes += 4;
	}
	i->address = (uint8_t *)address;
	return bytes;
}

/* Decodes the instruction at p.  Returns false if it is none of AMX. */
static bool decode(const ucontext_t *context, const uint8_t *p, struct instruction *i)
{
	int more = 0;

	memset(i, 0, sizeof(*i));
	if (p[0] != 0xc4 || (p[1] & 0x1f) != 2 || (p[2] & 0x84) != 0)
		return false;
	i->prefix = p[2] & 3;
	i->vvvv = ~(p[2] >> 3) & 15;
	i->opcode = p[3];
	i->reg = (p[4] >> 3) & 7;
	i->rm = p[4] & 7;
	i->memory = p[4] >> 6 != 3;
	if (i->memory)
		more = decode_memory(context, p + 4, !(p[1] & 0x20), !(p[1] & 0x40), i->opcode == 0x4b, i);
	i->bytes = 5 + more;
	return more >= 0;
}

static float of_bf16(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;

	memcpy(&value, &wide, 4);
	return value;
}

/* Executes TDPBF16PS, which sums a row's even products and its odd products
 * apart, and then adds both. */
__attribute__((target("avx512f,avx512bw,fma"))) static void multiply_bf16(int sum, int a, int b)
{
	int rows = tiles.config.rows[sum], depth = tiles.config.row_bytes[a] / 4;
	int columns = tiles.config.row_bytes[sum] / 4;
	__mmask16 mask = (__mmask16)((1u << columns) - 1);

	for (int m = 0; m < rows; m++) {
		__m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
		const uint16_t *left = (const uint16_t *)tiles.data[a][m];
		float *out = (float *)tiles.data[sum][m];

		for (int k = 0; k < depth; k++) {
			__m512i pair = _mm512_load_si512(tiles.data[b][k]);
			__m512 low = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
			__m512 high = _mm512_castsi512_ps(
				_mm512_and_si512(pair, _mm512_set1_epi32((int)0xffff0000)));

			even = _mm512_fmadd_ps(_mm512_set1_ps(of_bf16(left[2 * k])), low, even);
			odd = _mm512_fmadd_ps(_mm512_set1_ps(of_bf16(left[2 * k + 1])), high, odd);
		}
		even = _mm512_add_ps(even, odd);
		_mm512_mask_storeu_ps(out, mask, _mm512_add_ps(_mm512_loadu_ps(out), even));
	}
	__atomic_add_fetch(&products, 1, __ATOMIC_RELAXED);
}

/* Loads or stores the rows of a tile. */
static void move_tile(const struct instruction *i)
{
	int rows = tiles.config.rows[i->reg], bytes = tiles.config.row_bytes[i->reg];

	for (int row = 0; row < rows; row++)
		if (i->prefix == 2)
			memcpy(i->address + row * i->stride, tiles.data[i->reg][row], (size_t)bytes);
		else
			memcpy(tiles.data[i->reg][row], i->address + row * i->stride, (size_t)bytes);
}

static void load_tile(const struct instruction *i)
{
	memset(tiles.data[i->reg], 0, sizeof(tiles.data[i->reg]));
	move_tile(i);
}

static void configure(const struct instruction *i)
{
	if (!i->memory)
		memset(&tiles, 0, sizeof(tiles)); /* TILERELEASE */
	else if (i->prefix == 1)
		memcpy(i->address, &tiles.config, sizeof(tiles.config));
	else {
		memset(&tiles, 0, sizeof(tiles));
		memcpy(&tiles.config, i->address, sizeof(tiles.config));
	}
}

static bool execute(const struct instruction *i)
{
	switch (i->opcode) {
	case 0x49:
		if (i->prefix == 3)
			memset(tiles.data[i->reg], 0, sizeof(tiles.data[i->reg])); /* TILEZERO */
		else
			configure(i);
		return true;
	case 0x4b:
		if (i->prefix == 2)
			move_tile(i);
		else
			load_tile(i);
		return true;
	case 0x5c:
		multiply_bf16(i->reg, i->rm, i->vvvv);
		return i->prefix == 2;
	default:
		return false; /* products of integers, which nothing here asks for */
	}
}

/* Answers CPUID for a processor like this one, but with AMX. */
static void answer_cpuid(greg_t *registers)
{
	uint32_t leaf = (uint32_t)registers[REG_RAX], sub = (uint32_t)registers[REG_RCX], a, b, c, d;

	__cpuid_count(leaf, sub, a, b, c, d);
	if (leaf == 0 && a < 0x1e)
		a = 0x1e;
	else if (leaf == 7 && sub == 0)
		d |= 1u << 22 | 1u << 24 | 1u << 25; /* AMX-BF16, AMX-TILE, AMX-INT8 */
	else if (leaf == 0xd && sub == 0)
		a |= XTILECFG | XTILEDATA;
	else if (leaf == 0x1d && sub == 0)
		a = 1, b = c = d = 0; /* palettes */
	else if (leaf == 0x1d)
		a = 8192 | 1024 << 16, b = ROW_BYTES | TILES << 16, c = ROWS, d = 0;
	else if (leaf == 0x1e)
		a = 0, b = 16 | 64 << 8, c = d = 0; /* depth and width of a product */
	registers[REG_RAX] = a;
	registers[REG_RBX] = b;
	registers[REG_RCX] = c;
	registers[REG_RDX] = d;
}

static void answer_xgetbv(greg_t *registers)
{
	uint32_t low, high;

	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"((uint32_t)registers[REG_RCX]));
	registers[REG_RAX] = low | (registers[REG_RCX] == 0 ? XTILECFG | XTILEDATA : 0);
	registers[REG_RDX] = high;
}

static bool is_patched(const uint8_t *p)
{
	for (int i = 0; i < patches; i++)
		if (patched[i] == p)
			return true;
	return false;
}

static void on_illegal(int number, siginfo_t *info, void *where)
{
	ucontext_t *context = where;
	greg_t *registers = context->uc_mcontext.gregs;
	const uint8_t *p = (const uint8_t *)registers[REG_RIP];
	struct instruction i;
	unsigned mxcsr = _mm_getcsr();

	(void)number;
	(void)info;
	if (is_patched(p)) {
		if (p[2] == 0x90)
			answer_xgetbv(registers);
		else
			answer_cpuid(registers);
		registers[REG_RIP] += p[2] == 0x90 ? 3 : 2;
		return;
	}
	_mm_setcsr(0x9fc0); /* AMX rounds to nearest and takes denormals for zero */
	if (!decode(context, p, &i) || !execute(&i)) {
		static const char said[] =
			"amx: an illegal instruction that is not one of AMX's for bf16\n";

		if (write(2, said, sizeof(said) - 1) < 0)
			_exit(126);
		_exit(126);
	}
	_mm_setcsr(mxcsr);
	registers[REG_RIP] += i.bytes;
}

/* Replaces the instruction at offset of the library that is loaded at base. */
static void patch(uint8_t *base, unsigned long offset)
{
	uint8_t *p = base + offset, *page = (uint8_t *)((uintptr_t)p & ~(uintptr_t)4095);
	bool xgetbv = p[0] == 0x0f && p[1] == 0x01 && p[2] == 0xd0;

	if (patches == MOST_PATCHES || (!xgetbv && (p[0] != 0x0f || p[1] != 0xa2)))
		abort();
	if (mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC))
		abort();
	p[0] = 0x0f, p[1] = 0x0b;
	if (xgetbv)
		p[2] = 0x90;
	mprotect(page, 8192, PROT_READ | PROT_EXEC);
	patched[patches++] = p;
}

static int find_library(struct dl_phdr_info *info, size_t size, void *base)
{
	(void)size;
	if (!strstr(info->dlpi_name, "/libdnnl.so"))
		return 0;
	*(uint8_t **)base = (uint8_t *)info->dlpi_addr;
	return 1;
}

/* Returns a variable of the environment, which getenv() does not know yet since
 * this library is initialized before libc. */
static const char *variable(char **environment, const char *name)
{
	for (size_t length = strlen(name); *environment; environment++)
		if (!strncmp(*environment, name, length) && (*environment)[length] == '=')
			return *environment + length + 1;
	return NULL;
}

/* Installs the handler and patches oneDNN; the C library passes main()'s
 * arguments to constructors. */
__attribute__((constructor)) static void begin(int argc, char **argv, char **environment)
{
	struct sigaction action = { .sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO | SA_NODEFER };
	const char *list = variable(environment, "PD_AMX_PATCH");
	uint8_t *base = NULL;
	int (*set)(int, const struct sigaction *, struct sigaction *) = dlsym(RTLD_NEXT, "sigaction");

	(void)argc;
	(void)argv;
	if (!list || !set || !dl_iterate_phdr(find_library, &base))
		return;
	set(SIGILL, &action, NULL);
	while (*list) {
		char *end;
		unsigned long offset = strtoul(list, &end, 16);

		if (end == list)
			abort();
		patch(base, offset);
		list = end + (*end == ',');
	}
}

/* Appends the number of products computed to the file that PD_AMX_COUNT names,
 * one line for each process. */
__attribute__((destructor)) static void end(void)
{
	const char *name = getenv("PD_AMX_COUNT");
	FILE *file = name ? fopen(name, "a") : NULL;

	if (file) {
		fprintf(file, "%d\n", products);
		fclose(file);
	}
}

/* Replaces sigaction(), so that nobody takes the handler of SIGILL away. */
int sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
	int (*set)(int, const struct sigaction *, struct sigaction *) = dlsym(RTLD_NEXT, "sigaction");

	return number == SIGILL ? 0 : set(number, action, old);
}

/* Replaces syscall(), so that a process which asks for tiles gets them as from
 * the kernel of a processor with AMX. */
long syscall(long number, ...)
{
	long arguments[6], result;
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		arguments[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_arch_prctl && arguments[0] == REQUEST_PERMISSION)
		return 0;
	if (number == SYS_arch_prctl && arguments[0] == GET_PERMISSION) {
		*(uint64_t *)arguments[1] = XTILECFG | XTILEDATA;
		return 0;
	}
	register long r10 __asm__("r10") = arguments[3];
	register long r8 __asm__("r8") = arguments[4];
	register long r9 __asm__("r9") = arguments[5];
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(arguments[0]), "S"(arguments[1]), "d"(arguments[2]), "r"(r10),
			   "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	if (result < 0 && result > -4096) {
		errno = (int)-result;
		return -1;
	}
	return result;
}
