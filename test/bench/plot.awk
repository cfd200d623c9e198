# SPDX-License-Identifier: Apache-2.0
# Draws what a study in this folder measured, as SVG.
#     awk -f plot.awk -v kind=KIND -v title=... -v xlabel=... -v ylabel=... FILE
# FILE has a line per mark, fields separated by tabs, series in the order in which they come:
#     lines    SERIES  X  Y  SPREAD     a curve per series; SPREAD to either side, or nothing
#     points   SERIES  X  Y  NAME       a mark with a name at it; series "predicted": hollow
#     bars     SERIES  GROUP  Y  OTHER  a bar per series in each group; a tick at OTHER, which
#                                       -v other=... names
# -v remark=... stands above the drawing, at the right; -v zero=1 has the Y axis begin at 0 (bars
# always do); -v width, -v height: pixels.

BEGIN {
	FS = "\t"
	# told apart by who sees no red, no green or no blue (Okabe and Ito)
	colours = split("#0072b2 #d55e00 #009e73 #cc79a7 #e69f00 #56b4e9 #000000 #999999", colour, " ")
	if (!width)
		width = 760
	if (!height)
		height = 420
	left = 70; right = 180; top = 44; bottom = 56
	if (kind == "points")
		right = 40
}

NF >= 3 && kind == "bars" {
	if (!($2 in group))
		name_of_group[group[$2] = ++groups] = $2
	if (length($2) > longest)
		longest = length($2)
	note($1, group[$2], $3, $4)
	next
}

NF >= 3 { note($1, $2, $3, $4) }

function note(name, x, y, more) {
	if (!(name in series))
		name_of_series[series[name] = ++count] = name
	n++
	which[n] = series[name]; at[n] = x + 0; value[n] = y + 0; extra[n] = more
	spread = kind == "lines" ? more + 0 : 0
	if (n == 1 || at[n] < least_x) least_x = at[n]
	if (n == 1 || at[n] > most_x) most_x = at[n]
	if (n == 1 || value[n] - spread < least_y) least_y = value[n] - spread
	if (n == 1 || value[n] + spread > most_y) most_y = value[n] + spread
	if (kind == "bars" && more != "" && more + 0 > most_y) most_y = more + 0
}

# A step of 1, 2 or 5 times a power of ten, about `wanted` of them in `range`.
function step_of(range, wanted,   step) {
	step = 10 ^ int(log(range / wanted) / log(10) - 1)
	while (range / step > 10 * wanted) step *= 10
	if (range / step > 5 * wanted) return 10 * step
	if (range / step > 2 * wanted) return 5 * step
	return range / step > wanted ? 2 * step : step
}

function down(value, step) { return step * (value < 0 ? -int(-value / step + 0.999999) : int(value / step + 1e-9)) }
function up(value, step) { return -down(-value, step) }
function px(x) { return left + (x - low_x) / (high_x - low_x) * (width - left - right) }
function py(y) { return height - bottom - (y - low_y) / (high_y - low_y) * (height - top - bottom) }
function shown(value, step) { value = value == 0 ? 0 : value; return sprintf(step < 0.1 ? "%.2f" : step < 1 ? "%.1f" : "%.0f", value) }

function escape(text) {
	gsub(/&/, "\\&amp;", text)
	gsub(/</, "\\&lt;", text)
	return text
}

function words(x, y, anchor, text, more) {
	printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x, y, anchor, more, escape(text)
}

function line(x1, y1, x2, y2, style) {
	printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, style
}

# Under a group; where there is little room, aslant.
function label(x, text) {
	if (px(2) - px(1) >= 7 * longest)
		words(x, height - bottom + 18, "middle", text)
	else
		printf "<text transform=\"translate(%.1f %.1f) rotate(-35)\" text-anchor=\"end\">%s</text>\n", \
			x + 4, height - bottom + 16, escape(text)
}

function axes(   y, x, step_x, step_y) {
	step_y = step_of(most_y > least_y ? most_y - least_y : 1, 6)
	low_y = kind == "bars" || zero ? 0 : down(least_y, step_y)
	high_y = up(most_y, step_y)
	if (low_y == 0) {
		step_y = step_of(high_y, 6)
		high_y = up(most_y, step_y)
	}
	if (high_y <= low_y)
		high_y = low_y + step_y
	for (y = low_y; y <= high_y + step_y / 2; y += step_y) {
		line(left, py(y), width - right, py(y), "stroke=\"#dddddd\"")
		words(left - 8, py(y) + 4, "end", shown(y, step_y))
	}
	if (kind == "bars") {
		low_x = 0.5
		high_x = groups + 0.5
		for (x = 1; x <= groups; x++)
			label(px(x), name_of_group[x])
	} else {
		step_x = step_of(most_x > least_x ? most_x - least_x : 1, 8)
		if (kind == "lines" && step_x < 1)
			step_x = 1
		low_x = kind == "points" ? down(least_x - step_x / 2, step_x) : least_x
		high_x = kind == "points" ? up(most_x + step_x, step_x) : most_x
		if (zero && kind == "points")
			low_x = 0
		if (high_x <= low_x)
			high_x = low_x + 1
		for (x = up(low_x, step_x); x <= high_x + step_x / 1000; x += step_x) {
			line(px(x), height - bottom, px(x), height - bottom + 5, "stroke=\"#444444\"")
			words(px(x), height - bottom + 18, "middle", shown(x, step_x))
		}
	}
	line(left, height - bottom, width - right, height - bottom, "stroke=\"#444444\"")
	words(left, 24, "start", title, " font-size=\"15\" font-weight=\"bold\"")
	words(width - right, 24, "end", remark, " fill=\"#666666\"")
	words((left + width - right) / 2, height - 14, "middle", xlabel)
	printf "<text transform=\"translate(18 %.1f) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
		(top + height - bottom) / 2, escape(ylabel)
}

# Of the K-th series, filled or hollow, each with a shape of its own.
function mark(x, y, k, hollow,   c, style) {
	c = colour[(k - 1) % colours + 1]
	style = sprintf("fill=\"%s\" stroke=\"%s\" stroke-width=\"1.6\"", hollow ? "white" : c, c)
	if (k % 3 == 1)
		printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" %s/>\n", x, y, style
	else if (k % 3 == 2)
		printf "<rect x=\"%.1f\" y=\"%.1f\" width=\"7\" height=\"7\" %s/>\n", x - 3.5, y - 3.5, style
	else
		printf "<path d=\"M%.1f %.1fl4.5 8h-9z\" %s/>\n", x, y - 5, style
}

function legend_line(k,   y) {
	y = top + 12 + (k - 1) * 22
	line(width - right + 16, y, width - right + 40, y,
	     sprintf("stroke=\"%s\" stroke-width=\"2\"%s", colour[(k - 1) % colours + 1],
		     twin[k] ? " stroke-dasharray=\"7 7\"" : ""))
	if (!twin[k])
		mark(width - right + 28, y, k)
	words(width - right + 48, y + 4, "start", name_of_series[k])
}

function curve(k,   i, path, x, y) {
	for (i = 1; i <= n; i++)
		if (which[i] == k)
			path = path sprintf("%s%.1f %.1f", path ? "L" : "M", px(at[i]), py(value[i]))
	# one that lies on another lets it be seen
	printf "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-linejoin=\"round\"%s/>\n",
		path, colour[(k - 1) % colours + 1], path in drawn ? " stroke-dasharray=\"7 7\"" : ""
	twin[k] = path in drawn
	drawn[path]
	for (i = 1; i <= n; i++) {
		if (which[i] != k)
			continue
		# aside of one another: spreads of several series at one place stay legible
		x = px(at[i]) + (k - (count + 1) / 2) * 3
		y = extra[i] + 0
		if (y > 0)
			line(x, py(value[i] - y), x, py(value[i] + y),
			     sprintf("stroke=\"%s\" stroke-opacity=\"0.6\"", colour[(k - 1) % colours + 1]))
		if (!twin[k])
			mark(px(at[i]), py(value[i]), k)
	}
	legend_line(k)
}

# A colour per name; the two of a name are joined.
function points(   i, k, named, first, names) {
	for (i = 1; i <= n; i++) {
		if (!(extra[i] in named))
			named[extra[i]] = ++names
		else
			line(px(at[first[extra[i]]]), py(value[first[extra[i]]]), px(at[i]), py(value[i]),
			     "stroke=\"#999999\" stroke-dasharray=\"3 3\"")
		if (!(extra[i] in first))
			first[extra[i]] = i
	}
	for (i = 1; i <= n; i++) {
		k = named[extra[i]]
		mark(px(at[i]), py(value[i]), k, name_of_series[which[i]] == "predicted")
		if (name_of_series[which[i]] != "predicted")
			words(px(at[i]) + 9, py(value[i]) - 7, "start", extra[i])
	}
}

function bars(   i, x, w, tick, y) {
	w = (px(2) - px(1)) * 0.8 / count
	for (i = 1; i <= n; i++) {
		x = px(at[i]) + (which[i] - 1 - count / 2) * w
		printf "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n",
			x, py(value[i]), w * 0.92, py(0) - py(value[i]), colour[(which[i] - 1) % colours + 1]
		if (extra[i] != "") {
			tick = 1
			line(x - w * 0.06, py(extra[i]), x + w * 0.98, py(extra[i]),
			     "stroke=\"black\" stroke-width=\"2\"")
		}
	}
	for (i = 1; i <= count; i++) {
		y = top + 12 + (i - 1) * 22
		printf "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" fill=\"%s\"/>\n",
			width - right + 16, y - 8, colour[(i - 1) % colours + 1]
		words(width - right + 40, y + 4, "start", name_of_series[i])
	}
	if (tick && other) {
		y = top + 12 + count * 22
		line(width - right + 14, y, width - right + 32, y, "stroke=\"black\" stroke-width=\"2\"")
		words(width - right + 40, y + 4, "start", other)
	}
}

END {
	if (n == 0 || most_y == 0 && least_y == 0) {
		print "plot.awk: nothing to draw" >"/dev/stderr"
		exit 1
	}
	if (kind == "bars" && (width - left - right) / groups < 7 * longest)
		bottom = 30 + 4 * longest
	printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" " \
		"font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222222\">\n",
		width, height, width, height
	printf "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n", width, height
	axes()
	if (kind == "lines")
		for (k = 1; k <= count; k++)
			curve(k)
	else if (kind == "points")
		points()
	else
		bars()
	print "</svg>"
}
