"""What is drawn: charts as pure data, with the table behind each, and a renderer that makes SVG of them."""
