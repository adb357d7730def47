"""What any tensor looks like: element types, shapes, layouts, and where an element lies in memory."""
