* optsched: max-throughput of quickstart, sha256 887182bacfc41cbace065bd6b1c348f12a710231a33e45ffb36083ec52c7783e
* options: {'integral': True, 'normalise': 'none'}
* maximise; 15 rows, 44 columns
* names: program.mps.names.json
NAME        quickstart
OBJSENSE
  MAX
ROWS
 N  Obj     
 L  time_0  
 L  time_1  
 L  time_2  
 L  time_3  
 L  time_4  
 L  time_5  
 L  time_6  
 L  time_7  
 L  time_8  
 L  time_9  
 L  time_10 
 L  time_11 
 L  capacity_v100
 L  capacity_p100
 L  capacity_k80
COLUMNS
    MARK0000  'MARKER'                 'INTORG'
    x_0       Obj       18.42
    x_0       time_0    1
    x_0       capacity_v100  1
    x_1       Obj       5.434
    x_1       time_0    1
    x_1       capacity_p100  1
    x_2       Obj       1.184
    x_2       time_0    1
    x_2       capacity_k80  1
    x_3       Obj       71.05
    x_3       time_1    1
    x_3       capacity_v100  4
    x_4       Obj       45.16
    x_4       time_1    1
    x_4       capacity_v100  4
    x_5       Obj       15.39
    x_5       time_1    1
    x_5       capacity_p100  4
    x_6       Obj       2.366
    x_6       time_1    1
    x_6       capacity_k80  4
    x_7       Obj       47.46
    x_7       time_2    1
    x_7       capacity_v100  1
    x_8       Obj       12.86
    x_8       time_2    1
    x_8       capacity_p100  1
    x_9       Obj       2.905
    x_9       time_2    1
    x_9       capacity_k80  1
    x_10      Obj       72.39
    x_10      time_3    1
    x_10      capacity_v100  2
    x_11      Obj       50.8
    x_11      time_3    1
    x_11      capacity_v100  2
    x_12      Obj       13.68
    x_12      time_3    1
    x_12      capacity_p100  2
    x_13      Obj       3.375
    x_13      time_3    1
    x_13      capacity_k80  2
    x_14      Obj       2.422
    x_14      time_3    1
    x_14      capacity_k80  2
    x_15      Obj       23.29
    x_15      time_4    1
    x_15      capacity_v100  2
    x_16      Obj       17.83
    x_16      time_4    1
    x_16      capacity_v100  2
    x_17      Obj       5.592
    x_17      time_4    1
    x_17      capacity_p100  2
    x_18      Obj       1.328
    x_18      time_4    1
    x_18      capacity_k80  2
    x_19      Obj       0.9857
    x_19      time_4    1
    x_19      capacity_k80  2
    x_20      Obj       46.31
    x_20      time_5    1
    x_20      capacity_v100  4
    x_21      Obj       33.48
    x_21      time_5    1
    x_21      capacity_v100  4
    x_22      Obj       9.545
    x_22      time_5    1
    x_22      capacity_p100  4
    x_23      Obj       1.597
    x_23      time_5    1
    x_23      capacity_k80  4
    x_24      Obj       3.353
    x_24      time_6    1
    x_24      capacity_v100  1
    x_25      Obj       2.063
    x_25      time_6    1
    x_25      capacity_p100  1
    x_26      Obj       0.9691
    x_26      time_6    1
    x_26      capacity_k80  1
    x_27      Obj       39.52
    x_27      time_7    1
    x_27      capacity_v100  4
    x_28      Obj       20.41
    x_28      time_7    1
    x_28      capacity_v100  4
    x_29      Obj       8.219
    x_29      time_7    1
    x_29      capacity_p100  4
    x_30      Obj       1.071
    x_30      time_7    1
    x_30      capacity_k80  4
    x_31      Obj       36.56
    x_31      time_8    1
    x_31      capacity_v100  2
    x_32      Obj       33.72
    x_32      time_8    1
    x_32      capacity_v100  2
    x_33      Obj       10.65
    x_33      time_8    1
    x_33      capacity_p100  2
    x_34      Obj       2.345
    x_34      time_8    1
    x_34      capacity_k80  2
    x_35      Obj       2.115
    x_35      time_8    1
    x_35      capacity_k80  2
    x_36      Obj       18.74
    x_36      time_9    1
    x_36      capacity_v100  1
    x_37      Obj       4.25
    x_37      time_9    1
    x_37      capacity_p100  1
    x_38      Obj       0.9569
    x_38      time_9    1
    x_38      capacity_k80  1
    x_39      Obj       34.65
    x_39      time_10   1
    x_39      capacity_v100  1
    x_40      Obj       36.11
    x_40      time_10   1
    x_40      capacity_p100  1
    x_41      Obj       32.48
    x_41      time_10   1
    x_41      capacity_k80  1
    x_42      Obj       6.583
    x_42      time_11   1
    x_42      capacity_v100  1
    x_43      Obj       1.31
    x_43      time_11   1
    x_43      capacity_p100  1
    MARK0001  'MARKER'                 'INTEND'
RHS
    RHS_V     time_0    1
    RHS_V     time_1    1
    RHS_V     time_2    1
    RHS_V     time_3    1
    RHS_V     time_4    1
    RHS_V     time_5    1
    RHS_V     time_6    1
    RHS_V     time_7    1
    RHS_V     time_8    1
    RHS_V     time_9    1
    RHS_V     time_10   1
    RHS_V     time_11   1
    RHS_V     capacity_v100  8
    RHS_V     capacity_p100  4
    RHS_V     capacity_k80  4
BOUNDS
 BV BOUND     x_0     
 BV BOUND     x_1     
 BV BOUND     x_2     
 BV BOUND     x_3     
 BV BOUND     x_4     
 BV BOUND     x_5     
 BV BOUND     x_6     
 BV BOUND     x_7     
 BV BOUND     x_8     
 BV BOUND     x_9     
 BV BOUND     x_10    
 BV BOUND     x_11    
 BV BOUND     x_12    
 BV BOUND     x_13    
 BV BOUND     x_14    
 BV BOUND     x_15    
 BV BOUND     x_16    
 BV BOUND     x_17    
 BV BOUND     x_18    
 BV BOUND     x_19    
 BV BOUND     x_20    
 BV BOUND     x_21    
 BV BOUND     x_22    
 BV BOUND     x_23    
 BV BOUND     x_24    
 BV BOUND     x_25    
 BV BOUND     x_26    
 BV BOUND     x_27    
 BV BOUND     x_28    
 BV BOUND     x_29    
 BV BOUND     x_30    
 BV BOUND     x_31    
 BV BOUND     x_32    
 BV BOUND     x_33    
 BV BOUND     x_34    
 BV BOUND     x_35    
 BV BOUND     x_36    
 BV BOUND     x_37    
 BV BOUND     x_38    
 BV BOUND     x_39    
 BV BOUND     x_40    
 BV BOUND     x_41    
 BV BOUND     x_42    
 BV BOUND     x_43    
ENDATA
